"""The demo: Koord's main job, shown on a real containerd, or simulated where there is none."""
