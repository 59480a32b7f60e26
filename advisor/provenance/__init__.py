"""The series behind the numbers of findings and recommendations: ``skuwise explain SOURCE ID --query``."""
