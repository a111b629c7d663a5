"""The write path: what becomes of a document between the door and the stores."""
