"""A small client of the service's API, for programs that bring cases and labels or work through queues.

.. code-block:: python

    from deccaf.client import Client

    desk = Client("http://localhost:8080", key="deccaf_...")
    placed = desk.add_case("a17", {"amount": 250.0, "channel": "web"})
    print(placed.maker, placed.expected_loss)

It needs nothing but the standard library and pydantic. Every method is one operation of the OpenAPI document
and has its name; what it gives is a model of `deccaf.client.answers`.
"""

from deccaf.client.answers import Case, CaseInHand, Placed, Plan, PlanMade, Shift
from deccaf.client.calls import ApiError, Client

__all__ = ["ApiError", "Case", "CaseInHand", "Client", "Placed", "Plan", "PlanMade", "Shift"]
