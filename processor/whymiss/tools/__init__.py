"""What runs beside the service: replay, demo and the like."""
