"""Nothing is lost: every message of runtime.v1 through the real proxy, compared byte by byte."""
