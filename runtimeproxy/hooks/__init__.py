"""Hook servers: their files, how they are asked, and what their answers mean."""
