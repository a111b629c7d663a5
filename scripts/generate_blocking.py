"""Nothing is generated any more: the client for threads runs the methods of the one for coroutines."""
