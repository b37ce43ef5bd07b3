"""Reading and writing elements at computed positions."""
