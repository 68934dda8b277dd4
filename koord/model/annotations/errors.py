"""The one error of this package: which pod, which key, which value, and why."""

from __future__ import annotations

from koord.model.schema import clip

MAX_WHY = 300


class AnnotationError(ValueError):
    """A label or annotation of ``pod`` cannot be understood. ``value`` and ``why`` are shortened."""

    def __init__(self, pod: str, key: str, value: str, why: str) -> None:
        self.pod, self.key, self.value, self.why = pod, key, clip(value), why[:MAX_WHY]
        whose = f"pod {pod}: " if pod else ""
        super().__init__(f"{whose}{key}: {self.value}: {self.why}")
