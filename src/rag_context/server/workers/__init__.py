"""Several processes behind one port: a supervisor takes connections and passes each to the worker with the fewest."""
