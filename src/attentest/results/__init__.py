"""Results of one image and of many: numbers, tables and pictures."""
