"""Few edges as they come: nothing is sorted, and one thread or two walk them."""
