"""What is judged and for whom: thresholds, custom rules, exceptions, owners, teams."""
