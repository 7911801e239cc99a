"""The endpoints of SandboxFusion and ScaleBox: their shapes, our semantics."""
