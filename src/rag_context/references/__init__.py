"""What passages cite of a repository, checked against what the repository is now."""
