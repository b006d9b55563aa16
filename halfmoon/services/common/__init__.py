"""What several services share: it keeps no state and belongs to none of them."""
