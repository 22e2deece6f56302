"""The simulation of object stores: an engine under a scheduler that a seed decides."""
