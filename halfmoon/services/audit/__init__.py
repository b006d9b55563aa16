"""Who was refused what, who has changed what, and who has logged in: a line of JSON each."""
