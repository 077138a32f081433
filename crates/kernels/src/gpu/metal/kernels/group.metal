#include "group.h"
