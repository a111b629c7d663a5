"""What agents do on this machine: the projects they work on."""
