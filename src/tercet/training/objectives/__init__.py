"""What is optimised: each objective has a `module` that is trained and a `step` that leaves gradients in it."""
