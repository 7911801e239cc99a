"""Repository tasks made from source distributions, with their own tests as hidden tests."""
