"""What the control plane's API takes and gives. Inputs are bounded; outputs hold no secrets."""
