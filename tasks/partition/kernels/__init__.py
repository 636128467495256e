"""Loops of the partitioners and of the reordering."""
