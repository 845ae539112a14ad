"""How models are blended: what is held out, what each part weighs, and how the blend is calibrated."""
