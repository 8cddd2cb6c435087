"""Language of kernel programs, their activity, and the routes of their messages."""
