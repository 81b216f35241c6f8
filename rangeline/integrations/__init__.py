"""Doors to other trainers: none of them is imported here."""
