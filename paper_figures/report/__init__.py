"""The reproduction: all sections, and the page that shows them."""
