"""P(truth | case): the case classifier, the parts that it blends, and its calibration."""
