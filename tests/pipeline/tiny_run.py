"""A whole run in seconds."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONFIG = str(Path(__file__).with_name("tiny.yaml"))
