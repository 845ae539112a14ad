# The service, and all commands, as a user without rights. Build: docker build -t deccaf .
# Another base (a mirror, or one made with mmdebstrap) is named with --build-arg BASE=...
ARG BASE=docker.io/library/python:3.12-slim

FROM ${BASE} AS build
WORKDIR /src
RUN python3 -m venv /opt/deccaf
COPY requirements.lock ./
# the locked versions hold for what the image needs; the lock itself has the tools of development too
RUN grep -E '^[A-Za-z0-9]' requirements.lock | sed 's/ *\\$//' > /tmp/constraints.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY experiments experiments
RUN /opt/deccaf/bin/python -m pip install --no-cache-dir --disable-pip-version-check \
      --constraint /tmp/constraints.txt '.[service,report,excel,duckdb,postgresql]'

FROM ${BASE}
# LightGBM loads libgomp, which slim images lack
RUN apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends libgomp1 \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --home-dir /data --create-home --shell /usr/sbin/nologin deccaf
COPY --from=build /opt/deccaf /opt/deccaf
ENV PATH=/opt/deccaf/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    DECCAF_DATABASE=sqlite:////data/deccaf.db
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
  CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/readyz', timeout=2)"]
ENTRYPOINT ["deccaf"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8080"]
