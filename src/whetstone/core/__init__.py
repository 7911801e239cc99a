"""The data types of the project, and helpers that every other package may import. It does not
import torch."""
