#include "apps/commands/commands.h"

int main(int argc, char** argv) { return halfstep::app::run_program(argc, argv); }
