"""The paper's real-data study: brain MRI with and without a tumour (section 4)."""
