"""From many tested images to the claims of a study: means, groups, how many images differ, and how many one needs."""
