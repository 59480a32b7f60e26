"""What the kubelet says: pods, their devices, their names."""
