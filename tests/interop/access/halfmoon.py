"""What is not asked of Halfmoon."""

LEFT_OUT = frozenset({17, 36, 38, 39, 40, 41, 64, 80, 81, 88, 89})
"""APIs that need another login, delegation tokens, or that Halfmoon does not have."""
