// Grouping alone: compiled together with the router of all kinds it takes 7 s instead of 1.
#include "group.h"
