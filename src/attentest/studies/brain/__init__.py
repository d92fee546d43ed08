"""The study of a brain-tumour classifier: its slices, its training, its tests."""
