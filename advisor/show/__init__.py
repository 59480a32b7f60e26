"""What people read: pages as one document model, and the writers of each format."""
