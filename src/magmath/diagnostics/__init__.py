"""What users look at to understand a program: pictures of layouts."""
