"""What a tree of quotas comes to: what each may use now, in whole units, exactly. Pure, for scheduler and manager."""
