"""Study: prefill and decode on unlike chips, against one kind of chip for both."""
