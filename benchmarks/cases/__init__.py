"""The cases; a file joins by existing and defines CASES."""
