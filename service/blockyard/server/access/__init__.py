"""Who asks, and what they may: tokens, what each allows, and the rule of each route."""
