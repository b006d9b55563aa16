"""What changes or moves messages once they are here."""
