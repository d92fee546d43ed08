"""The paper's study of brain MRI: a classifier of slices with and without tumour, judged on other patients."""
