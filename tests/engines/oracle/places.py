"""Where the models' configurations are that engines are started with."""

from pathlib import Path

MODELS = Path(__file__).resolve().parents[1] / "models"
