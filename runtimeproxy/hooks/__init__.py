"""Hook servers: which there are, how they are asked, and what their answers mean."""
